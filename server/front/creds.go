package front

import (
	"context"
	"crypto/tls"
	"net"

	"google.golang.org/grpc/credentials"
)

// arrived are the credentials of connections whose TLS handshake is over, or that have none. The
// services see the certificate of a client as grpc's own credentials show it.
type arrived struct{}

func (arrived) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	t, ok := c.(*tls.Conn)
	if p, peeked := c.(*peekedTLS); peeked {
		t, ok = p.tls, true
	}
	if !ok {
		return c, plainInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}, nil
	}
	return c, credentials.TLSInfo{State: t.ConnectionState(), CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
}

func (arrived) ClientHandshake(_ context.Context, _ string, c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return c, plainInfo{}, nil
}

func (arrived) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}
func (a arrived) Clone() credentials.TransportCredentials { return a }
func (arrived) OverrideServerName(string) error           { return nil }

type plainInfo struct{ credentials.CommonAuthInfo }

func (plainInfo) AuthType() string { return "insecure" }
