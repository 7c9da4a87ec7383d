#!/bin/sh
# telecl: Slurm's Prolog (slurm.conf: Prolog=…, PrologFlags=Alloc). Runs as root on every node of a job, before it.
# A job that asks for remote accelerators, by --remote-accel or by a license, gets a directory that only its user can read, with
# a token for the site's services. The epilog takes both back.
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

# From the SPANK plugin: N[,mem=SIZE]. Without it, the licenses of the job.
asked=${SPANK_REMOTE_ACCEL:-}
if [ -z "$asked" ]; then
    asked=$(scontrol show job --oneliner "$SLURM_JOB_ID" 2>/dev/null | tr ' ' '\n' | sed -n 's/^Licenses=//p' | tr ',' '\n' |
        sed -n "s/^$LICENSE:\([0-9][0-9]*\)\$/\1/p" | head -n 1)
fi
[ -n "$asked" ] || exit 0

memory=
case $asked in *,mem=*) memory=--memory=${asked#*,mem=} ;; esac

place=/run/telecl/jobs/$SLURM_JOB_ID
mkdir -p -m 755 /run/telecl /run/telecl/jobs
mkdir -p -m 700 /run/telecl/tokens
rm -rf "$place"
mkdir -m 700 "$place" "$place/vendors" || complain "cannot make $place"

# The tenant is the user, as at a service's Unix socket.
"$TELECL" token create --tenant "user:$SLURM_JOB_USER" --for "$TOKEN_FOR" $memory --key "$TOKEN_KEY" --out "$place/token" \
    >/dev/null 2>"$place/error" || complain "no token: $(cat "$place/error")"
rm -f "$place/error"
# Where the user cannot put another: the epilog revokes what stands here.
"$TELECL" token show "$place/token" | sed -n 's/.*"id": *"\([0-9a-f]*\)".*/\1/p' >"/run/telecl/tokens/$SLURM_JOB_ID"
cp "$CA" "$place/ca.pem" && cp "$DRIVER" "$place/libtelecl.so" || complain "cannot copy $CA and $DRIVER"
echo "$place/libtelecl.so" >"$place/vendors/telecl.icd"
{
    echo "# Slurm job $SLURM_JOB_ID: $asked"
    printf 'services = ['
    separator=
    for service in $SERVICES; do
        printf '%s"%s"' "$separator" "$service"
        separator=', '
    done
    printf ']\nca = "%s/ca.pem"\ntoken = "%s/token"\n' "$place" "$place"
} >"$place/telecl.toml.new"
chown -R "$SLURM_JOB_UID" "$place"
mv "$place/telecl.toml.new" "$place/telecl.toml"
exit 0
