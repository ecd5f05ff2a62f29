//go:build planted_hand_over_blindly

package planted

// HandOverBlindly makes a leader with a stuck state machine hand over to a member that has not applied more.
const HandOverBlindly = true
