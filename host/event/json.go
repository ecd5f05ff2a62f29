package event

import "encoding/json"

// In JSON an error is its text, and no error is null. encoding/json would write the exported fields of the
// error's type: {} for most. So each event with an error has a MarshalJSON, and all are alike: the outer Err
// hides the inner one. Package tcp has the same for its events. No event is read back from JSON.

// textOf returns the text of an error, or nil without one.
func textOf(err error) any {
	if err == nil {
		return nil
	}
	return err.Error()
}

// MarshalJSON writes the fields, and the error as its text.
func (e GroupStopped) MarshalJSON() ([]byte, error) {
	type fields GroupStopped
	return json.Marshal(struct {
		fields
		Err any
	}{fields(e), textOf(e.Err)})
}

// MarshalJSON writes the fields, and the error as its text.
func (e MachineHalted) MarshalJSON() ([]byte, error) {
	type fields MachineHalted
	return json.Marshal(struct {
		fields
		Err any
	}{fields(e), textOf(e.Err)})
}

// MarshalJSON writes the fields, and the error as its text.
func (e DiskFull) MarshalJSON() ([]byte, error) {
	type fields DiskFull
	return json.Marshal(struct {
		fields
		Err any
	}{fields(e), textOf(e.Err)})
}

// MarshalJSON writes the fields, and the error as its text.
func (e SnapshotFailed) MarshalJSON() ([]byte, error) {
	type fields SnapshotFailed
	return json.Marshal(struct {
		fields
		Err any
	}{fields(e), textOf(e.Err)})
}

// MarshalJSON writes the fields, and the error as its text.
func (e HostRefused) MarshalJSON() ([]byte, error) {
	type fields HostRefused
	return json.Marshal(struct {
		fields
		Err any
	}{fields(e), textOf(e.Err)})
}

// MarshalJSON writes the fields, and the error as its text.
func (e JoinRefused) MarshalJSON() ([]byte, error) {
	type fields JoinRefused
	return json.Marshal(struct {
		fields
		Err any
	}{fields(e), textOf(e.Err)})
}
