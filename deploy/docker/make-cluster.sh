#!/bin/sh
# sh make-cluster.sh MASTER MASTER MASTER REPLICA REPLICA REPLICA
# Makes a Cluster of six servers, by their IP addresses. It may run again: servers refuse what was done before.
set -eu
REDISCLI_AUTH=$(cat /run/secrets/operator.password)
export REDISCLI_AUTH

ask() {
  host=$1
  shift
  valkey-cli --no-auth-warning --user operator -h "$host" "$@"
}

for host in "$@"; do
  until ask "$1" cluster nodes | grep " $host:6379@" | grep -qv handshake; do
    ask "$1" cluster meet "$host" 6379 > /dev/null
    sleep 0.2
  done
done
third=0
for host in "$1" "$2" "$3"; do
  ask "$host" cluster addslotsrange $((third * 16384 / 3)) $(((third + 1) * 16384 / 3 - 1)) > /dev/null
  third=$((third + 1))
done
for pair in "$4 $1" "$5 $2" "$6 $3"; do
  master=$(ask "${pair#* }" cluster myid)
  # Until it has heard of its master. A server that has become a master itself stays one.
  while ask "${pair% *}" cluster replicate "$master" | grep -q "Unknown node"; do sleep 0.2; done
done
for host in "$@"; do
  until ask "$host" cluster info | grep -q "^cluster_state:ok"; do sleep 0.2; done
done
# Until each replica follows a master, whichever of the servers that is by now.
for host in "$4" "$5" "$6"; do
  until ask "$host" info replication | grep -qE "^(role:master|master_link_status:up)"; do sleep 0.2; done
done
echo "The Cluster serves all slots."
