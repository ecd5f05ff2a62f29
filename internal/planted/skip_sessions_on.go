//go:build planted_skip_sessions

package planted

// SkipSessions makes the members of a group apply a command again that their table of sessions knows.
const SkipSessions = true
