#!/usr/bin/env bash
# Runs the commands of README.md and docs/install.md, exactly as written, on a new minimal Debian or Ubuntu.
#
#   sudo packaging/check_distribution.sh SUITE [MIRROR]     # SUITE: bookworm, trixie, noble, ...
#
# Makes the system with debootstrap in $WORK/SUITE (default: /var/tmp/tessera_distribution/SUITE), clones this
# repository into the home of a new user there, and runs every command as this user, with sudo where a page uses it. The
# last lines list the minutes and the disk space of each command. The system is kept for a look; delete it yourself.
#
# Environment: TESTS=1 also runs the preset `test`. RUN is a prefix of each command (RUN="taskset -c 0").
# http_proxy, https_proxy, PIP_INDEX_URL and PIP_CERT are used if they are set.
set -euo pipefail
if [[ $# == 0 || $(id -u) != 0 ]]; then
  echo "[check] usage, as root: $0 SUITE [MIRROR]" >&2
  exit 2
fi
[[ ${PRIVATE_MOUNTS:-} ]] || PRIVATE_MOUNTS=1 exec unshare --mount "$0" "$@"  # the mounts below end with this script
suite=$1 mirror=${2:-}
root=${WORK:-/var/tmp/tessera_distribution}/$suite
report=""

# Runs a command and adds its minutes and the growth of the system to the report.
step() {
  local begin=$SECONDS before after
  before=$(du -smx "$root" | cut -f1)
  "${@:2}" </dev/null || { echo "[check] $suite: failed: $1" >&2; exit 1; }
  after=$(du -smx "$root" | cut -f1)
  begin=$((SECONDS - begin))
  report+=$(printf '%4d:%02d %8d  %s' $((begin / 60)) $((begin % 60)) $((after - before)) "$1")$'\n'
}

if [[ -e $root ]]; then
  echo "[check] $root exists: delete it, or set WORK to another folder." >&2
  exit 2
fi
mkdir -p "$root"
script=sid components=main
if [[ $(readlink "/usr/share/debootstrap/scripts/$suite") != sid ]]; then  # Ubuntu, also if newer than the tool
  script=gutsy components=main,universe
fi
step "(debootstrap $suite)" debootstrap --variant=minbase --include=sudo --components=$components \
  "$suite" "$root" "$mirror" $script
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
chroot "$root" useradd --create-home --shell /bin/bash user
echo "user ALL=(ALL) NOPASSWD: ALL" >"$root/etc/sudoers.d/user"
rm -r "$root"/var/lib/apt/lists/*  # as in images of containers and clouds
echo 'APT::Get::Assume-Yes "true";' >"$root/etc/apt/apt.conf.d/yes"
git clone -q --no-hardlinks "$(dirname "$0")/.." "$root/home/user/tessera"
chroot "$root" chown -R user: /home/user

network=()
for name in http_proxy https_proxy PIP_INDEX_URL; do
  [[ ! -v $name ]] || network+=("$name=${!name}")
done
[[ ! -v http_proxy ]] || echo "Acquire::http::Proxy \"$http_proxy\";" >"$root/etc/apt/apt.conf.d/proxy"
[[ ! -v PIP_CERT ]] || { cp "$PIP_CERT" "$root/etc/pip_cert.pem"; network+=(PIP_CERT=/etc/pip_cert.pem); }

while IFS= read -r command; do
  [[ $command != *"--preset test" || ${TESTS:-} ]] || continue
  step "$command" ${RUN:-} chroot --userspec=user:user "$root" env -i HOME=/home/user USER=user LANG=C.UTF-8 \
    PATH=/usr/local/bin:/usr/bin:/bin "${network[@]}" bash -c "cd ~/tessera && $command"
done < <(sed -n '/^## Try it/,/^## Status/s/^\$ //p' "$root/home/user/tessera/README.md"
         sed -n '1,/^## /s/^\$ //p' "$root/home/user/tessera/docs/install.md")
[[ $report == *"--preset train"*"cmake --install"* ]] || { echo "[check] the pages have no such commands" >&2; exit 1; }

. "$root/etc/os-release"
echo "$PRETTY_NAME, $(chroot "$root" g++ --version | head -1), $(chroot "$root" cmake --version | head -1)"
printf 'minutes       MB  command\n%s' "$report"
