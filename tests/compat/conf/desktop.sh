#!/usr/bin/env bash
# enroot start --conf desktop.sh IMAGE: programs with windows.
#ENROOT_MOUNT_HOME=y

environ() {
    # Variables of the session.
    env | grep -E '^(DISPLAY|XAUTHORITY)=' || :
    echo "QT_X11_NO_MITSHM=1"
}

mounts() {
    echo "/shared/x11 /tmp/.X11-unix none x-create=dir,bind,ro,nosuid,nodev"
    if [ -n "${XAUTHORITY-}" ]; then
        echo "${XAUTHORITY} ${XAUTHORITY} none x-create=file,bind,ro,nosuid,nodev,nofail"
    fi
}
