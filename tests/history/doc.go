// Package history judges what clients of a replicated key-value store have seen, which sim/history records:
// linearizable.go with porcupine, for each key; order.go, chains.go and lists.go by orders that the
// operations themselves tell (indexes in the log, what each change has replaced, lists), which need no
// search. Simulated clusters and real processes are judged by the same functions. Its tests run three
// processes of examples/kv (or of examples/kv-pebble: -program), which are killed, paused, cut off from
// each other and wiped under load. TestRotations replaces the CA and all certificates of processes that
// talk over TLS, under load. TestSnapshotKills runs processes of its own, which take, send and install
// snapshots all the time, and are killed in the middle of that. TestObjectKills kills processes of
// examples/files in the middle of uploads. TestUpgradeToBatches upgrades processes of the last version that
// cannot read entries with several commands.
package history
