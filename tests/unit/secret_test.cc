// SPDX-License-Identifier: Apache-2.0
// covers: src/util/secret.c
// Digests and proofs: the vectors of FIPS 180-4 and RFC 4231, and what libcrypto itself makes.
#include "util/secret.h"

#include <cstring>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <random>
#include <string>
#include <vector>

namespace
{

std::string hex(const unsigned char *bytes, size_t count)
{
    std::string text;
    char two[3];
    for (size_t i = 0; i < count; i++) {
        snprintf(two, sizeof two, "%02x", bytes[i]);
        text += two;
    }
    return text;
}

std::string digest(const std::string &text)
{
    unsigned char out[KOLO_DIGEST_BYTES];
    return kolo_digest(text.data(), text.size(), out) ? hex(out, sizeof out) : "failed";
}

// A key that is shorter than a secret is filled up with zeros, as HMAC does itself.
std::string proof(const std::string &key, const std::string &text)
{
    unsigned char secret[KOLO_SECRET_BYTES] = {}, out[KOLO_PROOF_BYTES];
    memcpy(secret, key.data(), key.size());
    return kolo_prove(secret, text.data(), text.size(), out) ? hex(out, sizeof out) : "failed";
}

TEST(Secret, DigestsAreThoseOfTheStandard)
{
    EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(Secret, ProofsAreThoseOfTheStandard)
{
    EXPECT_EQ(proof(std::string(20, '\x0b'), "Hi There"),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_EQ(proof("Jefe", "what do ya want for nothing?"),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(proof(std::string(20, '\xaa'), std::string(50, '\xdd')),
              "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe");
}

TEST(Secret, DigestsAndProofsAreThoseOfLibcrypto)
{
    std::mt19937 random(1);
    for (size_t bytes = 0; bytes < 300; bytes++) {
        unsigned char secret[KOLO_SECRET_BYTES], ours[KOLO_PROOF_BYTES], theirs[KOLO_PROOF_BYTES];
        std::vector<unsigned char> text(bytes + 1);
        unsigned len = 0;
        for (unsigned char &byte : secret) {
            byte = static_cast<unsigned char>(random());
        }
        for (unsigned char &byte : text) {
            byte = static_cast<unsigned char>(random());
        }
        ASSERT_TRUE(kolo_prove(secret, text.data(), bytes, ours));
        ASSERT_NE(HMAC(EVP_sha256(), secret, sizeof secret, text.data(), bytes, theirs, &len),
                  nullptr);
        EXPECT_EQ(hex(ours, sizeof ours), hex(theirs, sizeof theirs)) << bytes << " bytes";
        ASSERT_TRUE(kolo_digest(text.data(), bytes, ours));
        ASSERT_EQ(EVP_Digest(text.data(), bytes, theirs, &len, EVP_sha256(), nullptr), 1);
        EXPECT_EQ(hex(ours, sizeof ours), hex(theirs, sizeof theirs)) << bytes << " bytes";
    }
}

} // namespace
