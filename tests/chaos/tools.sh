#!/usr/bin/env bash
# Installs what the episodes use and a new machine may lack: nft (cuts of links), tc and ip (namespaces, bandwidth),
# strace (errors of system calls), mkfs.ext4 (a full disk); all at the version of the machine's Debian release. What
# cannot be installed is left out: the tests say which faults they cannot make, and why.
set -euo pipefail

declare -A package=([nft]=nftables [ip]=iproute2 [tc]=iproute2 [strace]=strace [mkfs.ext4]=e2fsprogs)
PATH=$PATH:/usr/sbin:/sbin
missing=()
for program in "${!package[@]}"; do
  command -v "$program" >/dev/null || missing+=("${package[$program]}")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
  echo "missing, and this user cannot install them: ${missing[*]}; the faults that need them are left out"
  exit 0
fi
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >/dev/null; then
  echo "could not be installed: ${missing[*]}; the faults that need them are left out"
fi
