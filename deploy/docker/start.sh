#!/bin/sh
# sh start.sh valkey-server|valkey-sentinel LINE...
# Both rewrite their configuration at a failover. So it is made once, in the volume, of the lines, the file in
# /etc/valkey and the secret of this program.
set -eu
program=$1
shift
if [ ! -e /data/node.conf ]; then
  { cat "/etc/valkey/$program.conf"; printf '%s\n' "$@"; cat "/run/secrets/$program.conf"; } > /data/new.conf
  mv /data/new.conf /data/node.conf
fi
exec "$program" /data/node.conf
