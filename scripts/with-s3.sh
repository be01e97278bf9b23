#!/usr/bin/env bash
# Runs a command beside a real S3 server (SeaweedFS), named by CKPTFS_TEST_S3 and AWS_*, and stops the server afterwards.
# usage: scripts/with-s3.sh COMMAND...
# S3_VOLUMES: how many times 64 MiB it may hold (default 30). S3_SIGNED=1: it checks signatures, without which restic does not speak to it.
set -euo pipefail

directory=$(mktemp -d --suffix=.ckptfs-s3)
server=
clean() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$directory"
}
trap clean EXIT

read -r -a port <<<"$(python3 -c '
import socket
sockets = [socket.socket() for _ in range(8)]
for s in sockets: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in sockets))')"
signed=()
if [ "${S3_SIGNED:-0}" = 1 ]; then
  echo '{"identities":[{"name":"any","credentials":[{"accessKey":"any","secretKey":"any"}],"actions":["Admin","Read","Write","List","Tagging"]}]}' \
    >"$directory/identities.json"
  signed=(-s3.config="$directory/identities.json")
fi
# Lance and iceberg have fixed ports, over which a second server on the machine would die.
weed server -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir="$directory" -filer -s3 -master.telemetry=false \
  "${signed[@]}" -s3.port.lance=0 -s3.port.iceberg=0 -volume.max="${S3_VOLUMES:-30}" -master.volumeSizeLimitMB=64 \
  -master.port="${port[0]}" -master.port.grpc="${port[1]}" -volume.port="${port[2]}" -volume.port.grpc="${port[3]}" \
  -filer.port="${port[4]}" -filer.port.grpc="${port[5]}" -s3.port="${port[6]}" -s3.port.grpc="${port[7]}" \
  >"$directory/log" 2>&1 </dev/null &
server=$!

for attempt in $(seq 60); do
  made=$(echo "s3.bucket.create -name ckptfs" | weed shell -master="127.0.0.1:${port[0]}.${port[1]}" 2>&1 || true)
  case $made in *"created bucket"*) break ;; esac
  if [ "$attempt" = 60 ] || ! kill -0 "$server" 2>/dev/null; then
    tail -n 20 "$directory/log" >&2
    echo "the S3 server did not start" >&2
    exit 1
  fi
  sleep 1
done

export CKPTFS_TEST_S3=s3://ckptfs/test AWS_ENDPOINT_URL=http://127.0.0.1:${port[6]} AWS_ALLOW_HTTP=true
export AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any AWS_REGION=us-east-1
"$@"
