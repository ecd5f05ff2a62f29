package bench

import (
	"context"
	"fmt"

	"github.com/millrace/millrace/cmd/internal/lab/load"
	"github.com/millrace/millrace/host/pipeline"
)

// Registry maps the name of a pipeline to the function that opens a target under it.
type Registry map[string]load.OpenFunc

// InlineName is pipeline async over a state machine that is declared never to wait
// (host.GroupConfig.NonBlocking), as the bench's is. Its commands are applied in the group's turn.
const InlineName = "async+inline"

// BatchName is pipeline async under one goroutine that keeps as many writes under way as the other rows have
// clients (host.Group.SubmitMany).
const BatchName = "async+batch"

// GroupsName is pipeline async over several groups of the same hosts (Plan.Groups), each with its share of
// the clients. The groups have their leaders on all hosts in turn.
const GroupsName = "async+groups"

// TypedName is pipeline async behind the typed face (millrace.Node): Propose with a result. TypedBatchName
// is the same under one goroutine (Node.SubmitMany). They are compared with "async" and BatchName, which are
// bytes.
const (
	TypedName      = "typed"
	TypedBatchName = "typed+batch"
)

// IsBatch reports whether a pipeline is measured under one goroutine that keeps many writes under way.
func IsBatch(name string) bool { return name == BatchName || name == TypedBatchName }

// IsOptional reports whether a pipeline is measured only if it is asked for: the default has what was there
// before it.
func IsOptional(name string) bool { return IsBatch(name) || name == TypedName || name == GroupsName }

// Targets returns everything that can be measured: every pipeline, and bare in its three forms.
func Targets() Registry {
	r := Registry{BareName: openBare, FullBareName: openFullBare, BareCohortName: openBareCohort, InlineName: openInline, BatchName: ClusterUnder(pipeline.Async{}), GroupsName: openGroups, TypedName: openTyped, TypedBatchName: openTyped}
	for _, p := range pipeline.All {
		r[p.Name()] = ClusterUnder(p)
	}
	return r
}

// PipelineNames lists what a plan can measure beside bare, in the order of the table. These are the other two
// forms of bare and the pipelines, async also with its machine in the turn, under one goroutine, and over
// several groups. Then comes the typed face.
func PipelineNames() []string {
	names := []string{BareCohortName, FullBareName}
	for _, p := range pipeline.All {
		names = append(names, p.Name())
	}
	return append(names, InlineName, BatchName, GroupsName, TypedName, TypedBatchName)
}

// open opens the target that s names, or says that this build does not have it.
func (r Registry) open(ctx context.Context, s load.Setup) (load.Target, error) {
	open := r[s.Pipeline]
	if open == nil {
		return nil, fmt.Errorf("pipeline %q is not available in this build", s.Pipeline)
	}
	return open(ctx, s)
}
