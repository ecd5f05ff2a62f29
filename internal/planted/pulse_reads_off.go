//go:build !planted_pulse_reads

package planted

// PulseReads makes the answer to a pulse confirm the reads that wait.
const PulseReads = false
