package secretproxy

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// credentialFields are the header fields that carry credentials. A program's own are taken out:
// with a key of its own it could send to the host what the owner of that key then has.
var credentialFields = []string{
	"Authorization", "X-Api-Key", "Api-Key", "Apikey", "X-Goog-Api-Key", "X-Goog-Iam-Authorization-Token",
	"X-Auth-Token", "X-Access-Token", "X-Auth-Key", "X-Token", "X-Amz-Security-Token", "Private-Token", "Job-Token",
	"Deploy-Token", "Xi-Api-Key", "X-Subscription-Token", "Ocp-Apim-Subscription-Key", "Dd-Api-Key", "Dd-Application-Key",
	"X-Vault-Token", "Circle-Token", "X-Figma-Token", "X-Shopify-Access-Token", "X-Ms-Client-Principal",
}

// swap puts the value in the place of the placeholder, and takes out all other credentials, whose
// fields it returns. Where the program sent no placeholder, there or in the query, the host gets
// the value in the field that it wants; but not if the program calls it by its own name.
func (p *Proxy) swap(h http.Header, sent bool) (taken []string) {
	for _, field := range credentialFields {
		values := h[field]
		h.Del(field)
		for _, v := range values {
			swapped, is := p.swapped(v)
			switch {
			case is && h[field] == nil: // one field has one credential
				h.Add(field, swapped)
				sent = true
			case !is && !slices.Contains(taken, field):
				taken = append(taken, field)
			}
		}
	}
	if sent || p.Inside == "" {
		return taken
	}
	switch host := string(p.Target.Host); {
	case host == "api.anthropic.com":
		h.Set("X-Api-Key", p.Value)
	case host == "googleapis.com", strings.HasSuffix(host, ".googleapis.com"):
		h.Set("X-Goog-Api-Key", p.Value)
	default:
		h.Set("Authorization", "Bearer "+p.Value)
	}
	return taken
}

// swapped returns a field's value with the secret's in the place of the placeholder, if nothing but
// that is the credential there: PLACEHOLDER, SCHEME PLACEHOLDER, or Basic with it as the name or
// the password.
func (p *Proxy) swapped(text string) (string, bool) {
	scheme, credential, two := strings.Cut(strings.TrimSpace(text), " ")
	if !two {
		return p.Value, scheme == p.Placeholder
	}
	credential = strings.TrimSpace(credential)
	if credential == p.Placeholder {
		return scheme + " " + p.Value, true
	}
	if !strings.EqualFold(scheme, "Basic") {
		return "", false
	}
	decoded, err := base64.StdEncoding.DecodeString(credential)
	if err != nil {
		return "", false
	}
	name, password, _ := strings.Cut(string(decoded), ":")
	switch p.Placeholder {
	case password:
		password = p.Value
	case name:
		name = p.Value
	default:
		return "", false
	}
	return scheme + " " + base64.StdEncoding.EncodeToString([]byte(name+":"+password)), true
}

// credentialParameters are those of a query that carry credentials, in lower case.
var credentialParameters = []string{
	"access_token", "api_key", "api-key", "apikey", "auth_token", "oauth_token", "private_token", "job_token", "id_token",
	"x-amz-credential", "x-amz-security-token", "x-amz-signature", "x-goog-signature", "x-goog-credential", "sig",
}

// swapQuery puts the value in the place of the placeholder where a parameter for a credential has
// it, and takes out all other credentials, whose names it returns. A query that has none stays as
// it is.
func (p *Proxy) swapQuery(query string) (changed string, swapped bool, taken []string) {
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", false, nil // it was cleaned before
	}
	found := false
	for name, list := range values {
		if !p.isCredential(strings.ToLower(name)) {
			continue
		}
		found = true
		if len(list) == 1 && list[0] == p.Placeholder {
			values.Set(name, p.Value)
			swapped = true
		} else {
			delete(values, name)
			taken = append(taken, strings.ToLower(name))
		}
	}
	if !found {
		return query, false, nil
	}
	slices.Sort(taken)
	return values.Encode(), swapped, taken
}

// isCredential reports whether a parameter carries a credential. It is in lower case.
func (p *Proxy) isCredential(name string) bool {
	google := strings.HasSuffix("."+string(p.Target.Host), ".googleapis.com")
	return google && name == "key" || slices.Contains(credentialParameters, name)
}
