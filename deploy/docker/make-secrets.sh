#!/bin/sh
# deploy/docker/make-secrets.sh
# Makes deploy/docker/secrets/ for the compose files: passwords and users of Redis, URLs, tokens. It shows none of them.
set -eu
cd "$(dirname "$0")"
acl=$PWD/../redis/users.acl
umask 077
mkdir secrets  # fails where there are some: they are in use
cd secrets
trap '[ -s smoke.token ] || rm -rf "$PWD"' EXIT  # all of it, or nothing
# In a container of the image; JOBQUEUE names another program.
: "${JOBQUEUE:=docker run --rm --user $(id -u):$(id -g) --volume $PWD:/secrets --workdir /secrets jobqueue:0.1.0}"

password() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
digest() { printf %s "$1" | sha256sum | cut -d' ' -f1; }

service=$(password) replica=$(password) sentinel=$(password) operator=$(password)
{
  sed "s|resetpass|#$(digest "$service")|" "$acl"
  echo "user replica on #$(digest "$replica") -@all +psync +replconf +ping"
  echo "user sentinel on #$(digest "$sentinel") allchannels -@all +multi +slaveof +ping +exec +subscribe" \
    "+config|rewrite +role +publish +info +client|setname +client|kill +script|kill"
  echo "user operator on #$(digest "$operator") ~* &* +@all"
  echo "user health on nopass -@all +ping"  # for health checks, which could keep no secret
} > users.acl
printf 'masteruser replica\nmasterauth %s\n' "$replica" > valkey-server.conf
printf 'sentinel auth-user jobqueue sentinel\nsentinel auth-pass jobqueue %s\n' "$sentinel" > valkey-sentinel.conf
printf %s "$operator" > operator.password
printf %s "redis://jobqueue:$service@redis:6379" > redis-url
printf %s "redis+sentinel://jobqueue:$service@sentinel-0,sentinel-1,sentinel-2/jobqueue" > sentinel-url
printf %s "redis+cluster://jobqueue:$service@172.30.90.10,172.30.90.11,172.30.90.12" > cluster-url

# All topics for whoever administers, one for the smoke test. More like these for your programs, and in the same file.
$JOBQUEUE token create admin --may admin --expires 90d --record tokens.toml > admin.token
$JOBQUEUE token create smoke --may produce,consume --topics smoke --expires 90d --record tokens.toml > smoke.token
# The users in the containers are not the one on this machine: the folder is closed to others, its files are not.
chmod 0444 users.acl valkey-*.conf operator.password *-url *.token
chmod 0644 tokens.toml
