#!/bin/bash
# Measures what processes cost dbsim: start and stop, memory per additional process, ten thousand
# processes at once, and a hundred starts of a job of 200 processes. If fio is installed, measures
# it in turn and prints the ratio.
#
#    benches/processes.sh [PART...]      parts: start memory thousands starts; default: all
#
#  BIGIRON  executable [target/x86_64-unknown-linux-musl/release/bigiron]
#  DIR      directory for the runs [.]
#  ROUNDS   repetitions; the median is printed [7]
#  STARTS   starts of the job of 200 processes [100]
set -euo pipefail
BIGIRON=$(realpath "${BIGIRON:-target/x86_64-unknown-linux-musl/release/bigiron}")
DIR=$(realpath "${DIR:-.}")
ROUNDS=${ROUNDS:-7}
STARTS=${STARTS:-100}
FIO=$(command -v fio || true)
JOBS=$(mktemp -d)
trap 'rm -rf "$JOBS"' EXIT

median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2) ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
now() { date +%s.%N; }
# Prints the value of fact $2 in the JSON result $1.
fact() { tr ',{}' '\n\n\n' < "$1" | sed -n "s/^ *\"$2\": *\"\{0,1\}\([^\"]*\)\"\{0,1\} *$/\1/p" | head -n 1; }
# Prints the PIDs of processes that run executable $1.
running() { for p in /proc/[0-9]*; do [ "$(readlink "$p/exe" 2> /dev/null)" = "$1" ] && echo "${p#/proc/}"; done || true; }
# Prints the total proportional set size of the processes that run executable $1, in KiB.
pss() { for p in $(running "$1"); do sed -n 's/^Pss: *\([0-9]*\) kB/\1/p' "/proc/$p/smaps_rollup" 2> /dev/null || true; done | awk '{ s += $1 } END { print s + 0 }'; }

# A job of $1 idle sessions with a window of $2.
idle_job() {
    cat > "$JOBS/idle.toml" << JOB
dbsim = 1
about = "Idle sessions alone"
[run]
time = "$2"
ramp = "0s"
[cache]
size = "1M"
[data]
size = "10M"
[journal]
size = "2M"
[process.session]
kind = "idle"
count = $1
touch = 0
every = "1s"
JOB
}

part_start() {
    echo "== Start and stop of processes, seconds, median of $ROUNDS (targets: 1: 0.05, 100: 0.1, 1000: 0.5)"
    echo "   dbsim: bigiron dbsim run idle.toml (facts start-ns + stop-ns); whole: the command less its window of 0.1 s"
    [ -n "$FIO" ] && echo "   fio: fio --name=x --ioengine=null --size=4k --numjobs=N --group_reporting"
    for n in 1 100 1000; do
        idle_job "$n" 100ms
        : > "$JOBS/dbsim"; : > "$JOBS/whole"; : > "$JOBS/fio"
        for _ in $(seq "$ROUNDS"); do
            begin=$(now)
            "$BIGIRON" dbsim run "$JOBS/idle.toml" --dir "$DIR" --format json > "$JOBS/result" 2> /dev/null
            awk "BEGIN { print $(now) - $begin - 0.1 }" >> "$JOBS/whole"
            awk "BEGIN { print ($(fact "$JOBS/result" start-ns) + $(fact "$JOBS/result" stop-ns)) / 1e9 }" >> "$JOBS/dbsim"
            if [ -n "$FIO" ]; then
                begin=$(now)
                (cd "$JOBS" && "$FIO" --name=x --ioengine=null --size=4k --numjobs="$n" --group_reporting > /dev/null)
                awk "BEGIN { print $(now) - $begin }" >> "$JOBS/fio"
            fi
        done
        dbsim=$(median < "$JOBS/dbsim"); line="$n: dbsim $dbsim, whole $(median < "$JOBS/whole")"
        [ -n "$FIO" ] && fio=$(median < "$JOBS/fio") && line="$line, fio $fio, ratio $(awk "BEGIN { printf \"%.3f\", $dbsim / $fio }")"
        echo "   $line"
    done
}

part_memory() {
    echo "== Memory of one more process, KiB: (PSS of all with 300) - (PSS of all with 100), by 200 (target: 102)"
    local few=0 many=0 fio_few=0 fio_many=0
    for n in 100 300; do
        idle_job "$n" 8s
        "$BIGIRON" dbsim run "$JOBS/idle.toml" --dir "$DIR" > /dev/null 2>&1 &
        run=$!
        # More processes than sessions: the command, the run, and the sessions' guard process.
        until [ "$(running "$BIGIRON" | wc -l)" -ge $((n + 3)) ]; do sleep 0.2; done
        sleep 1
        few=$many; many=$(pss "$BIGIRON")
        wait "$run"
        if [ -n "$FIO" ]; then
            (cd "$JOBS" && exec "$FIO" --name=x --ioengine=null --size=4k --thinktime=1s --time_based --runtime=10 --numjobs="$n" --group_reporting > /dev/null) &
            run=$!
            until [ "$(running "$FIO" | wc -l)" -ge "$n" ]; do sleep 0.2; done
            sleep 1
            fio_few=$fio_many; fio_many=$(pss "$FIO")
            wait "$run"
        fi
    done
    awk "BEGIN { d = ($many - $few) / 200; printf \"   dbsim %.1f\", d; if ($fio_many > 0) { f = ($fio_many - $fio_few) / 200; printf \", fio %.1f, ratio %.3f\", f, d / f } print \"\" }"
}

part_thousands() {
    echo "== 10,000 processes: 5,000 pairs of client and server (targets: start 20 s, 6 GiB)"
    cat > "$JOBS/pairs.toml" << 'JOB'
dbsim = 1
about = "Five thousand users"
[run]
time = "10s"
ramp = "0s"
[cache]
size = "160M"
[data]
size = "200M"
[journal]
size = "64M"
[transaction.lookup]
weight = 9
steps = ["read 1 zipf:0.9"]
[transaction.change]
steps = ["read 1 zipf:0.9", "dirty 1", "commit"]
[process.user]
kind = "client"
count = 5000
pace = "closed think 5s"
transport = "socket"
[process.log-writer]
kind = "log-writer"
[process.database-writer]
kind = "database-writer"
JOB
    local free before=0
    available() { awk '/^MemAvailable/ { print $2 }' /proc/meminfo; }
    before=$(available); least=$before
    "$BIGIRON" dbsim run "$JOBS/pairs.toml" --dir "$DIR" --validate --format json > "$JOBS/result" 2> "$JOBS/errors" &
    run=$!
    while kill -0 "$run" 2> /dev/null; do
        free=$(available); [ "$free" -lt "$least" ] && least=$free
        sleep 0.2
    done
    wait "$run" || { cat "$JOBS/errors"; exit 1; }
    awk "BEGIN { printf \"   start %.2f s, stop %.2f s, memory %.2f GiB, page tables %.2f GiB, round trip p50 %s ns, p99 %s ns\n\",
        $(fact "$JOBS/result" start-ns) / 1e9, $(fact "$JOBS/result" stop-ns) / 1e9, ($before - $least) / 1048576,
        $(fact "$JOBS/result" page-table-bytes-user) / 1073741824,
        \"$(fact "$JOBS/result" class.user.round-trip-p50-ns)\", \"$(fact "$JOBS/result" class.user.round-trip-p99-ns)\" }"
    echo "   left over: $(running "$BIGIRON" | wc -l)"
}

part_starts() {
    echo "== $STARTS starts of an OLTP job of 200 processes (address randomisation: $(cat /proc/sys/kernel/randomize_va_space); target: 0 hangs, 0 orphans)"
    local hangs=0 failures=0 orphans=0
    for _ in $(seq "$STARTS"); do
        status=0
        timeout -s KILL 120 "$BIGIRON" dbsim run oltp --dir "$DIR" --validate --set process.foreground.count=197 --set cache.size=64M \
            --set journal.size=16M --set run.transactions=800 > /dev/null 2> "$JOBS/errors" || status=$?
        [ "$status" -eq 137 ] && hangs=$((hangs + 1))
        [ "$status" -ne 0 ] && [ "$status" -ne 137 ] && failures=$((failures + 1)) && cat "$JOBS/errors"
        orphans=$((orphans + $(running "$BIGIRON" | wc -l)))
    done
    echo "   hangs $hangs, failures $failures, orphans $orphans"
}

for part in "${@:-start memory thousands starts}"; do
    for p in $part; do "part_$p"; done
done
