package examination

// Standstill measures for how long work has waited without progress.
type Standstill struct {
	Busy  bool
	Done  uint64
	Since int64
}

// Observe records whether work waits and how much has been done so far, and returns for how many ticks
// nothing was done.
func (w *Standstill) Observe(busy bool, done uint64, now int64) int64 {
	if !busy || !w.Busy || done != w.Done {
		*w = Standstill{Busy: busy, Done: done, Since: now}
	}
	return now - w.Since
}
