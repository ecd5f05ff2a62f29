// Package compare runs the same workload on Millrace and on other Raft libraries, side by side in one run. It
// has tests and benchmarks only. README.md says what is measured and how the comparison is kept fair.
package compare
