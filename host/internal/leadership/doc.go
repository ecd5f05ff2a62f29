// Package leadership is what the members of a group know of who leads it. A leader watches its own work
// (Leader). If its disk or its machine stands still while others could work, it hands over. For that it knows
// what the others acknowledge (Acks) and have applied (AppliedRecord). It also watches which lag
// (SlowMembers). A follower has what its leader has heard (Views), and one that led before the host restarted
// has its attempts to lead again (Resume).
//
// A turn calls Leader, which asks its group by Turn (host/leadership.go). Package host asks and answers what
// members see (host/leaderview.go). Views is atomic; Transfer has a lock, which
// is held for a few instructions. What else has state belongs to the turn.
//
// Reading order: leader.go, stall.go, machine.go, transfer.go, acks.go, question.go, slow.go, view.go,
// resume.go.
package leadership
