package host

import (
	"strings"
	"testing"
)

// A join token names the CA of the host that makes it. While the certificate cannot be read there is none:
// it would let its bearer join a cluster with any CA.
func TestNoJoinTokenWithoutTheCertificate(t *testing.T) {
	l := openTestHost(t, 1)
	t.Cleanup(func() { _ = l.Close(over()) })
	l.lead()
	l.config.TLS = &TLS{CertFile: "gone.pem", KeyFile: "gone.key", CAFile: "gone.ca"}
	if _, err := l.group.StartJoinToken(JoinTokenOptions{}); err == nil || !strings.Contains(err.Error(), "certificate cannot be read now") || !strings.Contains(err.Error(), "gone") {
		t.Errorf("a token without the certificate: %v", err)
	}
	l.config.TLS = nil
	if _, err := l.group.StartJoinToken(JoinTokenOptions{}); err != nil {
		t.Errorf("a token without TLS: %v", err)
	}
}
