#!/bin/sh
# telecl: Slurm's Prolog (slurm.conf: Prolog=…, PrologFlags=Alloc). Runs as root on every node of a job, before it.
# A job that has asked for remote accelerators, by --remote-accel or by licenses, gets a directory that only its user can read, with
# a token for as many of the site's. The services see to it that it uses no other. The epilog takes both back.
#
# It always ends well: Slurm takes a node out of service whose prolog fails, and a job without accelerators is the smaller harm.
umask 077
[ -r /etc/telecl/slurm.env ] || exit 0
. /etc/telecl/slurm.env

complain() {
    logger -t telecl-prolog "job ${SLURM_JOB_ID:-?}: $*" 2>/dev/null
    exit 0
}

case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac

# How many: as many as the job has licenses, which slurmctld has counted. What a user's sbatch or srun says is not asked for that.
count=$(timeout 20 scontrol show job --oneliner "$SLURM_JOB_ID" 2>/dev/null | tr ' ' '\n' | sed -n 's/^Licenses=//p' | tr ',' '\n' |
    sed -n "s/^$LICENSE:\([0-9][0-9]*\)\$/\1/p" | head -n 1)
if [ -z "$count" ]; then
    [ -z "${SPANK_REMOTE_ACCEL:-}" ] || complain "asks for accelerators, but has no license $LICENSE: is job_submit.lua in use?"
    exit 0
fi

# From the SPANK plugin: N[,mem=SIZE]. It comes from the user, so it is taken in its one form or not at all.
memory=$(printf '%s' "${SPANK_REMOTE_ACCEL:-}" | sed -n 's/^[0-9][0-9]*,mem=\([0-9][0-9]*MiB\)$/--memory=\1/p')

# Which ones: beginning with another for every job, and the same on all of its nodes.
set -- $ACCELERATORS
[ $# -gt 0 ] || complain "ACCELERATORS is empty in /etc/telecl/slurm.env"
if [ "$count" -gt $# ]; then
    logger -t telecl-prolog "job $SLURM_JOB_ID: has $count licenses, and there are $# accelerators" 2>/dev/null
    count=$#
fi
first=$((SLURM_JOB_ID % $#))
set -- "$@" "$@"
shift "$first"
devices=
while [ "$count" -gt 0 ]; do
    devices="$devices --at=${1%/*}=number:${1##*/}"
    shift
    count=$((count - 1))
done

# Where: the services of these, so that programs are not told of others that refuse them. NAME=ADDRESS, or NAME:PORT.
services=
for service in $SERVICES; do
    case $service in *=*) name=${service%%=*} ;; *) name=${service%%:*} ;; esac
    case "$devices " in *" --at=$name=number:"*) services="$services${services:+, }\"${service#*=}\"" ;; esac
done
[ -n "$services" ] || complain "none of SERVICES in /etc/telecl/slurm.env is for$devices"

place=/run/telecl/jobs/$SLURM_JOB_ID
mkdir -p -m 755 /run/telecl /run/telecl/jobs
mkdir -p -m 700 /run/telecl/tokens
rm -rf "$place"
mkdir -m 700 "$place" "$place/vendors" || complain "cannot make $place"

# The tenant is the user, as at a service's Unix socket.
# shellcheck disable=SC2086 # words without anything of the user's
"$TELECL" token create --tenant "user:$SLURM_JOB_USER" --job "$SLURM_JOB_ID" --for "$TOKEN_FOR" $memory $devices \
    --key "$TOKEN_KEY" --out "$place/token" >/dev/null 2>"$place/error" || complain "no token: $(cat "$place/error")"
rm -f "$place/error"
# Where the user cannot put another: the epilog revokes what stands here.
"$TELECL" token show "$place/token" | sed -n 's/.*"id": *"\([0-9a-f]*\)".*/\1/p' >"/run/telecl/tokens/$SLURM_JOB_ID"
cp "$CA" "$place/ca.pem" && cp "$DRIVER" "$place/libtelecl.so" || complain "cannot copy $CA and $DRIVER"
echo "$place/libtelecl.so" >"$place/vendors/telecl.icd"
{
    echo "# Slurm job $SLURM_JOB_ID:$devices $memory"
    printf 'services = [%s]\nca = "%s/ca.pem"\ntoken = "%s/token"\n' "$services" "$place" "$place"
} >"$place/telecl.toml.new"
chown -R "$SLURM_JOB_UID" "$place"
mv "$place/telecl.toml.new" "$place/telecl.toml"
exit 0
