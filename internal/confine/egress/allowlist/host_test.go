package allowlist

import (
	"net/netip"
	"strings"
	"testing"
)

func TestNamesHaveOneForm(t *testing.T) {
	long := strings.Repeat("a", 63)
	tests := []struct {
		name string
		text string
		want Host // "" is refused
	}{
		{"a name stays as it is", "example.com", "example.com"},
		{"capitals become small", "Example.COM", "example.com"},
		{"the final dot goes", "example.com.", "example.com"},
		{"one final dot only", "example.com..", ""},
		{"a single label is a name", "intranet", "intranet"},
		{"underscores are in names that people reach", "_dmarc.my_host.example.com", "_dmarc.my_host.example.com"},
		{"digits are no number with a letter", "3com.example", "3com.example"},
		{"punycode stays", "xn--bcher-kva.example", "xn--bcher-kva.example"},
		{"punycode that stands for nothing", "xn--a.example", ""},
		{"punycode of ASCII, which has another spelling", "xn--example-.com", ""},
		{"letters beyond ASCII, which a program never sends", "bücher.example", ""},
		{"full-width letters", "ｅxample.com", ""},
		{"nothing", "", ""},
		{"a dot", ".", ""},
		{"an empty label", "a..b", ""},
		{"a first dot", ".example.com", ""},
		{"a label of 63 bytes", long + ".com", Host(long + ".com")},
		{"a label of 64 bytes", long + "a.com", ""},
		{"253 bytes", strings.Repeat("a.", 126) + "b", Host(strings.Repeat("a.", 126) + "b")},
		{"255 bytes", strings.Repeat("a.", 127) + "b", ""},
		{"an IPv4 address", "93.184.216.34", ""},
		{"an IPv4 address as one number", "1572395042", ""},
		{"a short IPv4 address", "127.1", ""},
		{"an octal IPv4 address", "0177.0.0.1", ""},
		{"a hexadecimal IPv4 address", "0x7f000001", ""},
		{"a hexadecimal last part", "127.0.0.0x1", ""},
		{"an empty hexadecimal last part", "127.0.0.0x", ""},
		{"an IPv6 address", "::1", ""},
		{"an IPv6 address in brackets", "[::1]", ""},
		{"a user", "user@example.com", ""},
		{"a port", "example.com:443", ""},
		{"a path", "example.com/", ""},
		{"a backslash", `example.com\a`, ""},
		{"a percent escape", "example%2ecom", ""},
		{"a NUL", "example.com\x00.evil.net", ""},
		{"a line break", "example.com\r\nHost: x", ""},
		{"a space", "example.com ", ""},
		{"a wildcard", "*.example.com", ""},
		{"a hyphen at an end", "-a.example.com", ""},
		{"a dot that is none", "example。com", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseName(tt.text)
			if (err != nil) != (tt.want == "") || got != tt.want {
				t.Errorf("ParseName(%q) = %q, %v; want %q", tt.text, got, err, tt.want)
			}
		})
	}
}

func TestPeopleMayWriteOtherLetters(t *testing.T) {
	for text, want := range map[string]Host{
		"Bücher.example": "xn--bcher-kva.example", "ｅxample.com": "example.com", "example。com": "example.com",
	} {
		if got, err := parseTyped(text); err != nil || got != want {
			t.Errorf("parseTyped(%q) = %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"１２７.１", "a\u200db.example", "ex\u00adample..com", "\u2068example.com"} {
		if got, err := parseTyped(text); err == nil {
			t.Errorf("parseTyped(%q) = %q, want an error", text, got)
		}
	}
}

func TestAddressesHaveOneSpelling(t *testing.T) {
	for _, text := range []string{"127.1", "0177.0.0.1", "1.2.3.4.", "::ffff:1.2.3.4", "fe80::1%eth0", "[::1]", ""} {
		if got, err := ParseAddr(text); err == nil {
			t.Errorf("ParseAddr(%q) = %v, want an error", text, got)
		}
	}
	if got, err := ParseAddr("2606:2800::0001"); err != nil || got != netip.MustParseAddr("2606:2800::1") {
		t.Errorf("ParseAddr = %v, %v", got, err)
	}
}

func FuzzName(f *testing.F) {
	for _, seed := range []string{"example.com", "xn--bcher-kva.example", "EXAMPLE.com.", "127.1", "a@b", "0x7f.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := ParseName(text)
		if err != nil {
			return
		}
		if again, err := ParseName(string(name)); err != nil || again != name {
			t.Errorf("%q: its form %q has the form %q, %v", text, name, again, err)
		}
		if strings.ToLower(strings.TrimSuffix(text, ".")) != string(name) {
			t.Errorf("%q became another name: %q", text, name)
		}
		if _, err := netip.ParseAddr(string(name)); err == nil {
			t.Errorf("%q is an address", name)
		}
	})
}
