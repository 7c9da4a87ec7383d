#!/bin/sh
# telecl: Slurm's TaskProlog. Runs as the user before every task; lines `export NAME=VALUE` become variables of the task.
place=/run/telecl/jobs/${SLURM_JOB_ID:-none}
[ -r "$place/telecl.toml" ] || exit 0
echo "export TELECL_SESSION_DIR=$place"
echo "export OCL_ICD_VENDORS=$place/vendors"
echo "export OCL_ICD_FILENAMES=$place/libtelecl.so"

# Containers see the directory at the same path. Apptainer takes variables with this prefix into the container, also one that
# is otherwise closed; with two, into a container that is started in the first, as HPK does with the containers of a pod.
echo "export APPTAINER_BINDPATH=${APPTAINER_BINDPATH:+$APPTAINER_BINDPATH,}$place"
echo "export APPTAINERENV_APPTAINER_BINDPATH=$place"
for prefix in APPTAINERENV_ APPTAINERENV_APPTAINERENV_; do
    echo "export ${prefix}TELECL_SESSION_DIR=$place"
    echo "export ${prefix}OCL_ICD_VENDORS=$place/vendors"
    echo "export ${prefix}OCL_ICD_FILENAMES=$place/libtelecl.so"
done
