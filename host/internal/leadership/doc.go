// Package leadership is who should lead a group, as far as its members can know. It has what hosts say of
// their load, and how often the leadership may be handed over for placement. A leader watches here whether
// others could work without it (Acks) and which lag (SlowMembers). A follower has what its leader has heard
// (Views), and one that led before the host restarted has its attempts to lead again (Resume).
//
// Package host asks and answers (host/leadership.go), chooses (host/survey.go) and hands over
// (host/handover.go). Moves has a lock, which is held for a few instructions; Views
// is atomic. What else has state belongs to the turn.
//
// Reading order: moves.go, record.go, acks.go, question.go, slow.go, view.go, resume.go.
package leadership
