// Package leadership is what the members of a group know of who leads it. A leader watches here whether
// others could work without it (Acks), what they have applied (AppliedRecord) and which lag (SlowMembers).
// A follower has what its leader has heard (Views), and one that led before the host restarted has its
// attempts to lead again (Resume).
//
// Package host asks and answers (host/leaderview.go) and hands over (host/transfer.go). Views is atomic; what
// else has state belongs to the turn.
//
// Reading order: acks.go, question.go, slow.go, view.go, resume.go.
package leadership
