// Package ops is what a program needs besides the library to be operated: pages for monitoring and operators,
// settings, and an orderly end. It is a module of its own. The library imports neither a metrics library, nor
// net/http, nor a YAML parser.
//
//	func main() { ops.Main("counter", run) }
//
//	func run(ctx context.Context, args []string) error {
//		s := ops.NewSettings("counter")
//		if err := s.Parse(args, os.Environ()); err != nil {
//			return err // Main prints it, and ends with status 64
//		}
//		node, err := millrace.Open(ctx, s.Config, machine)
//		if err != nil {
//			return err
//		}
//		return ops.Run(ctx, node, s.Service())
//	}
//
// Begin with handler.go for the pages, settings.go for settings, and run.go for the end of a process. Each
// part can be used without the others: NewHandler takes any node, and NewCollector any host.
package ops

import (
	"context"
	"io"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/host"
)

// Node is a node of any command and result: *millrace.Node[C, R].
type Node interface {
	Host() *host.Host
	Group() *host.Group
	Cluster() string
	Failed() <-chan struct{}
	Explain() millrace.Diagnosis
	Members() millrace.Members
	Status() millrace.Status
	Err() error
	Halted() error
	Export(ctx context.Context, w io.Writer) (millrace.SnapshotInfo, error)
	Close(ctx context.Context) error
}
