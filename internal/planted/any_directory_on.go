//go:build planted_any_directory

package planted

// AnyDirectory makes a host accept a peer with any directory.
const AnyDirectory = true
