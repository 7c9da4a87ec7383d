-- telecl: Slurm's job_submit/lua (slurm.conf: JobSubmitPlugins=lua; this file beside slurm.conf, or its function called from yours).
-- A job with --remote-accel=N asks for N licenses, so that it waits until there are as many, and Slurm accounts them.

local license = "accel"

local function remote_accel(job)
    for _, entry in pairs(job.spank_job_env or {}) do
        local count = string.match(entry, "^REMOTE_ACCEL=(%d+)")
        if count then
            return count
        end
    end
end

function telecl_add_licenses(job)
    local count = remote_accel(job)
    local asked = job.licenses or ""
    if count and not string.find("," .. asked, "," .. license, 1, true) then
        job.licenses = (asked == "" and "" or asked .. ",") .. license .. ":" .. count
    end
end

function slurm_job_submit(job, partitions, user)
    telecl_add_licenses(job)
    return slurm.SUCCESS
end

function slurm_job_modify(job, old, partitions, user)
    return slurm.SUCCESS
end

return slurm.SUCCESS
