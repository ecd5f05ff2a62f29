//go:build planted_restore_no_sessions

package planted

// RestoreNoSessions makes a member that begins from a snapshot forget its sessions.
const RestoreNoSessions = true
