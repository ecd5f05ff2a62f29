//go:build planted_any_directory

package planted

// AnyDirectory makes a host believe a peer whatever directory it comes with.
const AnyDirectory = true
