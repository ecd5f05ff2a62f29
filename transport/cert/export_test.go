package cert

// Parsed is Files.Load of files with this content.
func Parsed(certificate, key, ca []byte) (*Credentials, error) {
	return Files{Cert: "cert", Key: "key", CA: "ca"}.parse(certificate, key, ca)
}
