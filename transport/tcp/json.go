package tcp

import "encoding/json"

// In JSON an error is its text, as in all events (host/event/json.go).

// textOf returns the text of an error, or nil without one.
func textOf(err error) any {
	if err == nil {
		return nil
	}
	return err.Error()
}

// MarshalJSON writes the fields, and the error as its text.
func (e CertificateRefused) MarshalJSON() ([]byte, error) {
	type fields CertificateRefused
	return json.Marshal(struct {
		fields
		Err any
	}{fields(e), textOf(e.Err)})
}

// MarshalJSON writes the fields, and the error as its text.
func (e CredentialsRefused) MarshalJSON() ([]byte, error) {
	type fields CredentialsRefused
	return json.Marshal(struct {
		fields
		Err any
	}{fields(e), textOf(e.Err)})
}
