package wal

// Enumerates exports enumerates to the tests in package wal_test.
var Enumerates = enumerates

// Appending reports whether a goroutine holds the lock of the appends.
func Appending(l *Log) bool {
	if !l.mu.TryLock() {
		return true
	}
	l.mu.Unlock()
	return false
}
