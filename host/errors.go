package host

// refusedDirectoryError is why a group stops whose host comes with a directory that it must not have.
type refusedDirectoryError struct{ error }

func (e *refusedDirectoryError) Unwrap() error { return e.error }
