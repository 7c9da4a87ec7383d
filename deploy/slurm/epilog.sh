#!/bin/sh
# telecl: Slurm's Epilog. Runs as root on every node of a job, after it: takes back what the prolog gave.
[ -r /etc/telecl/slurm.env ] || exit 0
. /etc/telecl/slurm.env
case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac

place=/run/telecl/jobs/$SLURM_JOB_ID
token=/run/telecl/tokens/$SLURM_JOB_ID
if [ -s "$token" ]; then
    "$TELECL" token revoke --list "$REVOKED" "$(cat "$token")" >/dev/null 2>&1 && rm -f "$token"
fi
rm -rf "$place"

# What the services of users' own jobs (telecl slurm service) leave on a node if they are killed.
rm -rf /tmp/telecl-"${SLURM_JOB_UID:-none}"-"$SLURM_JOB_ID"-*
exit 0
