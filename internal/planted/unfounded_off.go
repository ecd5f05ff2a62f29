//go:build !planted_unfounded

package planted

// Unfounded makes the members of a group vote, and its leader take commands, before the group is founded.
const Unfounded = false
