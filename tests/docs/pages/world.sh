# SPDX-License-Identifier: Apache-2.0
# What guides presume: Linux as root, this repository, host h1 at 10.0.1.2 with interfaces, a fabric file and job files.
# Read by a shell with a network and mounts of its own. Nothing that is written anywhere outlasts it.

here=$PWD programs=$1 cache=${XDG_CACHE_HOME:-$HOME/.cache}
layers=$TMPDIR/layers
mkdir "$layers"
mount -t tmpfs tmpfs "$layers"
for folder in /etc /opt /usr /var "$here"; do
    mkdir -p "$layers$folder" "$layers$folder.work"
    mount -t overlay overlay -o "lowerdir=$folder,upperdir=$layers$folder,workdir=$layers$folder.work" "$folder"
done
cd "$here"
cp "$TMPDIR"/presumed/* .
export HOME=$TMPDIR/home XDG_CACHE_HOME=$cache EDITOR=true PYTHONPATH=$here:${PYTHONPATH-}
mkdir -p "$HOME" /etc/prometheus /etc/slurm /etc/gradlane /run/gradlane
useradd alice
mkdir -p sim/build
printf '#!/bin/sh\nexec cat\n' > sim/build/gradlane-sim && chmod +x sim/build/gradlane-sim # it takes minutes to be built
for interface in eth{0,1,2} s1-eth{1,2,4} veth{1,2}; do
    ip link add "$interface" type veth peer name "$interface-peer"
    ip link set "$interface" up && ip link set "$interface-peer" up
done
for address in 10.0.{1..5}.2 192.0.2.1 192.0.2.11; do ip addr add "$address/24" dev eth1; done

# What does not end by itself, a reader leaves running in another terminal. It is there when it says so. A second one of
# the same kind takes its place.
declare -A running
there() {
    local name=$1 words=$2 log
    shift 2
    log=$(mktemp)
    if [ "${running[$name]-}" ]; then kill "${running[$name]}" && wait "${running[$name]}" || true; fi
    command "$@" > "$log" 2>&1 &
    running[$name]=$!
    until grep -q -- "$words" "$log"; do
        kill -0 "${running[$name]}" || { cat "$log"; return 1; }
        sleep 0.1
    done
}
# What wants a terminal has one, and a reader who presses q.
in_terminal() { while sleep 0.5; do printf q; done | script -qec "$*" /dev/null; }
gradlane() {
    case $1 in
        agent) there "$*" ready: gradlane "$@" ;;
        serve) # on another host, until the workers have come
            gradlane agent --address 10.0.5.2 --socket "$TMPDIR/h5.sock"
            command gradlane "$@" --socket "$TMPDIR/h5.sock" &
            running[serve]=$!
            until command gradlane status --socket "$TMPDIR/h5.sock" | grep -q "^job .* rank 4"; do
                kill -0 "${running[serve]}"
            done
            ;;
        top) in_terminal gradlane "$@" ;;
        doctor) command gradlane "$@" > "$TMPDIR/doctor" || grep 'checks: [1-9]* failed' "$TMPDIR/doctor" ;; # alone, of four
        *) command gradlane "$@" ;;
    esac
}
gradlane-controller() {
    case "$1 ${2-}" in
        "run "*) there gradlane-controller ready: gradlane-controller "$@" ;;
        "top "*) in_terminal gradlane-controller "$@" ;;
        "token revoke") # the token of the page is another one each time
            command gradlane-controller token revoke "$(command gradlane-controller token list | awk '/prometheus/ {print $1}')" ;;
        *) command gradlane-controller "$@" ;;
    esac
}
gradlane-switch() {
    case $* in
        *@pcap:*) command gradlane-switch "$@" ;; # ends with its file
        *"--admin switch.sock "*-i*) # a controller brings the program
            there gradlane-switch ready gradlane-switch "$@" --program p.json --p4info p.txtpb ;;
        -*) there gradlane-switch ready gradlane-switch "$@" ;;
        *"--packets "*) # as they come
            ip addr add 10.9.0.1/24 dev s1-eth1-peer
            ping -c 60 10.9.0.2 > /dev/null &
            command gradlane-switch "$@"
            kill $! ;;
        *) command gradlane-switch "$@" ;;
    esac
}

# What can't be done here is checked: tests/docs/pages/stand_ins.py.
stand_in() { "$programs/python" "$here/tests/docs/pages/stand_ins.py" "$@"; }
for name in make systemctl docker kubectl helm npm sbatch sysctl torchrun pyright lint-imports pip runuser tcpdump p4c-bm2-ss; do
    eval "$name() { stand_in $name \"\$@\"; }"
done
python3() { python "$@"; }
python() {
    case "$1 ${2-}" in
        "-m venv" | "-m pytest" | "-m tests."* | "-m gradlane_sim") stand_in "$2" "${@:3}" ;;
        examples/*) stand_in example "$@" ;;
        *) command python "$@" ;;
    esac
}
pytest() { stand_in pytest "$@"; }
printf '#!/bin/sh\nexec "%s/python" "%s/tests/docs/pages/stand_ins.py" pip "$@"\n' "$programs" "$here" > "$TMPDIR/pip"
chmod +x "$TMPDIR/pip"
mount --bind "$TMPDIR/pip" "$programs/pip"

# The leaf-spine of the fabric file, for pages that change it. At hosts' ports nobody answers.
switches() {
    fabric_switch leaf1 1 5@udp:127.0.0.1:6115-127.0.0.1:6311 6@udp:127.0.0.1:6116-127.0.0.1:6411 1@veth1 2@veth2
    fabric_switch leaf2 2 5@udp:127.0.0.1:6225-127.0.0.1:6312 6@udp:127.0.0.1:6226-127.0.0.1:6412 \
        1@s1-eth1 2@s1-eth2 3@s1-eth4
    fabric_switch spine1 3 1@udp:127.0.0.1:6311-127.0.0.1:6115 2@udp:127.0.0.1:6312-127.0.0.1:6225
    fabric_switch spine2 4 1@udp:127.0.0.1:6411-127.0.0.1:6116 2@udp:127.0.0.1:6412-127.0.0.1:6226
}
fabric_switch() {
    local name=$1 number=$2
    shift 2
    there "$name" ready gradlane-switch --cpu-port 255 --device-id "$number" \
        --grpc-server-addr "127.0.0.1:$((number == 1 ? 9559 : 9600 + number))" "${@/#/--interface=}"
}
