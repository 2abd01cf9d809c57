#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tegracast-devices.service runs this before tegracast.service starts: it lets that open the GPU's device files that are there, by
# path. systemd knows regions by their names in /proc/devices as well, but nvgpu takes the name of the board's device, such as
# 17000000.gpu, systemd takes no pattern for a path, and the region of /dev/nvmap has the files of many small drivers.
set -eu
udevadm settle --timeout=30 || true
# nvgpu makes all its device files but this one when the GPU is switched on for the first time.
for power in /dev/nvgpu/*/power; do
	[ ! -c "$power" ] || echo 1 >"$power" || echo "$power does not switch the GPU on" >&2
done
udevadm settle --timeout=30 || true # the new ones get their group
set --
for file in /dev/nvgpu/*/* /dev/nvgpu/*/*/* /dev/nvhost* /dev/nvmap /dev/nvsciipc /dev/host1x-fence; do
	[ ! -c "$file" ] || set -- "$@" "DeviceAllow=$file rw"
done
[ $# != 0 ] || exit 0
systemctl set-property --runtime tegracast.service "$@"
# systemd appends its new file to the unit's drop-ins; beside one of a later name, such as override.conf, it would tell at each
# systemctl status that the unit has changed on disk.
[ "$(systemctl show -P NeedDaemonReload tegracast.service)" != yes ] || systemctl daemon-reload
