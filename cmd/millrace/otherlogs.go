package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/millrace/millrace/cmd/internal/lab/logs"
	"github.com/millrace/millrace/cmd/internal/lab/logs/child"
)

// otherLog is a log that is built from the source tree: its name, and the directory of its program.
type otherLog struct{ name, dir string }

var otherLogs = []otherLog{{"etcd-wal", "etcdwal"}, {"raft-wal", "raftwal"}, {"bbolt", "boltdb"}}

// logPrograms is a directory of programs, one for each of otherLogs.
const logPrograms = otherPrograms + "/logs"

// findLogs fills in which logs can be measured, and why others cannot.
func (f walFlags) findLogs(ctx context.Context, plan *logs.Plan, b *builder) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	own := func(name string) logs.Log { return logs.Log{Name: name, Command: []string{self, logChildVerb, name}} }
	plan.Logs = []logs.Log{own(child.RawLogName)}
	names, err := f.chosen()
	if err != nil {
		return err
	}
	for _, name := range names {
		if name == child.OwnLogName {
			plan.Logs = append(plan.Logs, own(name))
			continue
		}
		other := otherLogs[slices.IndexFunc(otherLogs, func(o otherLog) bool { return o.name == name })]
		command, err := b.program(ctx, name, logPrograms+"/"+other.dir, buildGo)
		switch {
		case errors.Is(err, errInterrupted):
			return err
		case err != nil:
			plan.Missing = append(plan.Missing, fmt.Sprintf("%s: %v", name, err))
		default:
			plan.Logs = append(plan.Logs, logs.Log{Name: name, Command: command, Other: true})
		}
	}
	return nil
}
