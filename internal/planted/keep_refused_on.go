//go:build planted_keep_refused

package planted

// KeepRefused makes a log leave on disk what it wrote of an append before the disk was full.
const KeepRefused = true
