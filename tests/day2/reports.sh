#!/usr/bin/env bash
# reports.sh CASES [CASE…]: runs the cases of public bug reports, a directory with run-case.sh, against this checkout.
#
# The cases were written for an earlier face of package millrace. They are copied, the copies are adapted to the face
# of today, and each prints its last line: PASS, FAIL or UNCLEAR. Case 33 says UNCLEAR (decision 0033). All take about
# 20 minutes; QUICK=1 leaves out most of the systems of case 18.
set -euo pipefail
[ $# -ge 1 ] && [ -f "$1/run-case.sh" ] || { echo "usage: reports.sh CASES [CASE…]; CASES is a directory with run-case.sh" >&2; exit 64; }
checkout=$(cd "$(dirname "$0")/../.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
cp -r "$1/." "$copy"
shift
cd "$copy"

discard='slog.New(slog.NewTextHandler(io.Discard, nil))'
sed -i 's/role=StateLeader/role=leader/' lib/rl.py
sed -i 's/cluster := flag.Uint64("cluster", 0, "")/cluster := flag.String("cluster", "", "")/
  s/, millrace.WithLogger(log))/)/
  s/HeartbeatInterval: \*hb,/HeartbeatInterval: *hb, Logger: log,/
  s/millrace.\(AddMember\|AddLearner\|ReplaceMember\)(id)/millrace.\1(id, "")/
  s/n.Plan(changes...)/n.Plan(ctx, changes...)/' lib/rnode/main.go
sed -i "s/quiet := millrace.WithLogger(\(.*\))\$/quiet := \1/
  s/, Members: members}, millrace.InMemory(&machine\[C\]{}, codec), quiet)/, Members: members, Logger: quiet}, millrace.InMemory(\&machine[C]{}, codec))/" 04-poison-command/main.go
sed -i "s/quiet := millrace.WithLogger(\(.*\))\$/quiet := \1/
  s/Leases: true}, m, quiet,\$/Leases: true, Logger: quiet,/
  s/millrace.WithEvents(func(millrace.Event) {/OnEvent: func(millrace.Event) {/
  s/^\(\t*\)}))\$/\1}}, m)/
  s/n.Do(/n.ViewExclusive(/" 20-user-code-panics/main.go
sed -i 's/Peers: map/Members: map/' 30-hung-machines/main.go
sed -i "s/, millrace.WithLogger($discard))/)/
  s/Members: map\[uint64\]string{1: addr}}/Members: map[uint64]string{1: addr}, Logger: $discard}/" 33-many-sessions/main.go 38-export-panic-leak/main.go
sed -i 's/first := n.NewSession()/first := n.NewSession().ID()/
  s/millrace.InSession(n.NewSession(), 1, 1)/millrace.InSession(n.NewSession().Next())/
  s/millrace.InSession(first, \([0-9]\), \([0-9]\))/millrace.InSession(millrace.SessionMark{Session: first, Number: \1, Low: \2})/' 33-many-sessions/main.go

[ $# -gt 0 ] || set -- [0-9]*
failed=0
for name in "$@"; do
  began=$SECONDS
  CASE_TIMEOUT=${CASE_TIMEOUT:-900} timeout 1500 ./run-case.sh "$checkout" "$name" >"out-$name" 2>&1 || true
  last=$(tail -n 1 "out-$name" | cut -c 1-200)
  echo "$name: $last ($((SECONDS - began)) s)"
  case $last in *"RESULT PASS"* | *"RESULT UNCLEAR"*) ;; *) failed=1; tail -n 20 "out-$name" ;; esac
done
exit $failed
