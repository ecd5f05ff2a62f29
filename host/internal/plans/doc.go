// Package plans has how the members of a group change. Group is one group's: it answers requests, carries
// out stages while this member leads, and begins plans for hosts that come with join tokens. Package host
// is its Wiring (host/plan.go). It makes plans (host/execute.go), and hands in what hosts prove
// (host/applicants.go).
//
// Requests, Executions, Catalog and Applicants have locks of their own, which are held for a few
// instructions. The rest of a Group belongs to the turn.
//
// Reading order: group.go, record.go (what hosts tell each other), requests.go, stages.go (the rules of a
// plan), catchup.go, execution.go (callers that wait). Then outlook.go (the page for an operator),
// catalog.go, token.go and applicants.go.
package plans
