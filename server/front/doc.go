// Package front is where clients arrive: listeners, TLS, gRPC, the JSON gateway and pages.
//
// One port serves all of them. Without TLS the first bytes decide: HTTP/2's preface is gRPC, everything
// else is HTTP/1.1. With TLS the client's offer decides (ALPN): who offers only h2 is gRPC, who offers
// http/1.1 too is a browser or curl. So gRPC never goes through net/http, and a connection costs one
// look.
//
// Everything is bounded: connections without a first byte, handshakes, headers, bodies, and the time
// that requests under way have at the end.
package front
