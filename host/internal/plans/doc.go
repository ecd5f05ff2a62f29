// Package plans has how the members of a group change. It owns what is asked of a leader, the callers that
// wait for it, the rules of stages, and join tokens. Package host asks and proposes (host/plan.go,
// host/execute.go, host/applicants.go). It hands in the roster, and which hosts are there.
//
// Requests, Executions, Catalog and Applicants have locks of their own, which are held for a few
// instructions. CatchUp belongs to the turn. The rest has no state.
//
// Reading order: record.go (what hosts tell each other), requests.go, stages.go (the rules of a plan),
// catchup.go, execution.go (callers that wait). Then outlook.go (the page for an operator), catalog.go,
// token.go and applicants.go.
package plans
