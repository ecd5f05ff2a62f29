package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/millrace/millrace/server/audit"
)

var serveLogLong = `log prints what is committed in the log of a stopped member of "millrace serve", one request a line. DIR is its --data-dir.

It only reads, so it works for another user and on a volume that cannot be written. A member that runs is refused: its
log changes meanwhile. Notes go to standard error.

Each line is JSON: index (of the entry), pos (among the requests of an entry, if it is not the first), term, revision (of the
store behind the request), error (why it was refused, if it was), mark (of a command that its member may send again), request
(an etcdserverpb.InternalRaftRequest in protobuf's JSON) or millrace {renewals, expiries, quotaBytes}, which etcd has no message for.

Revisions come from applying the log once more in memory. A log that begins behind a snapshot has none. A command that came again
has the mark of the first one. It is applied once, and is left out if the log has the first one.

` + printExitHelp(exitOK, exitCannot, exitUsage, exitInterrupted)

func newServeLog(a app) *cobra.Command {
	return &cobra.Command{
		Use: "log DIR", Short: "Print the committed requests of a stopped member, as JSON", Long: serveLogLong, Args: wantArgs(1, "one directory"),
		Example: `  millrace serve log m1.etcd | jq -c 'select(.request.put) | [.revision, .request.put.key]'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			l, err := audit.Open(cmd.Context(), args[0], scanProgress(a))
			if err != nil {
				return cannot(err)
			}
			for _, note := range l.Notes {
				fmt.Fprintln(a.stderr, "millrace:", note)
			}
			_, err = l.WriteTo(cmd.Context(), a.stdout)
			return cannot(errors.Join(err, l.Close()))
		},
	}
}
