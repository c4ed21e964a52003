/* Peer of the benchmark `seal`: cipher and HMAC of the same bytes on one core.
 *
 *   seal_peers seal|open ENCTYPE COUNT LEN MILLISECONDS
 *
 * Prints "name<TAB>GB/s" for OpenSSL and for libipsec-mb.
 * OpenSSL makes two passes over each message: AES-CBC, then HMAC. Its contexts are created once.
 * libipsec-mb gets one job for each message. It accepts at most 65,534 bytes, so longer messages are left out.
 * Both omit ciphertext stealing, tokens and comparison of checksums, so they do less work than vouch.
 * Build: cc -O2 -o seal_peers seal_peers.c -lcrypto -lIPSec_MB   (-DNO_IPSEC_MB without that library) */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifndef NO_IPSEC_MB
#include <intel-ipsec-mb.h>
#endif

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

int main(int argc, char **argv)
{
    if (argc != 6)
        return 2;
    int seal = !strcmp(argv[1], "seal"), enctype = atoi(argv[2]);
    size_t count = atol(argv[3]), len = atol(argv[4]), whole = (32 + len + 15) / 16 * 16;
    double limit = atol(argv[5]) / 1e3;
    int hash_first = (enctype == 17 || enctype == 18) == seal;
    unsigned char key[32] = {1}, mac[64], iv[16] = {0};
    unsigned char **data = malloc(count * sizeof *data);
    for (size_t i = 0; i < count; i++)
        memset(data[i] = malloc(whole + 4160), (int)i, whole);

    const EVP_CIPHER *cipher = enctype == 17 || enctype == 19 ? EVP_aes_128_cbc() : EVP_aes_256_cbc();
    const EVP_MD *md = enctype <= 18 ? EVP_sha1() : enctype == 19 ? EVP_sha256() : EVP_sha384();
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    EVP_CipherInit_ex(c, cipher, NULL, key, iv, seal);
    EVP_CIPHER_CTX_set_padding(c, 0);
    HMAC_CTX *h = HMAC_CTX_new();
    HMAC_Init_ex(h, key, 32, md, NULL);
    double start = now(), spent;
    size_t passes = 0;
    do {
        for (size_t i = 0; i < count; i++) {
            int out;
            unsigned int mac_len;
            for (int pass = 0; pass < 2; pass++) {
                if ((pass == 0) == hash_first) {
                    HMAC_Init_ex(h, NULL, 0, NULL, NULL);
                    HMAC_Update(h, data[i], whole);
                    HMAC_Final(h, mac, &mac_len);
                } else {
                    EVP_CipherInit_ex(c, NULL, NULL, NULL, iv, seal);
                    EVP_CipherUpdate(c, data[i], &out, data[i], (int)whole);
                }
            }
        }
        passes++;
        spent = now() - start;
    } while (spent < limit);
    printf("OpenSSL, two passes\t%.3f\n", passes * count * len / spent / 1e9);

#ifndef NO_IPSEC_MB
    if (whole > 65534)
        return 0;
    IMB_MGR *m = alloc_mb_mgr(0);
    IMB_ARCH arch;
    init_mb_mgr_auto(m, &arch);
    IMB_HASH_ALG hash = enctype <= 18 ? IMB_AUTH_HMAC_SHA_1 : enctype == 19 ? IMB_AUTH_HMAC_SHA_256 : IMB_AUTH_HMAC_SHA_384;
    static unsigned char ipad[64] __attribute__((aligned(16))), opad[64] __attribute__((aligned(16))), macs[256][64];
    static uint32_t enc[60] __attribute__((aligned(16))), dec[60] __attribute__((aligned(16)));
    for (int outer = 0; outer < 2; outer++) {
        unsigned char block[128], *pad = outer ? opad : ipad;
        memset(block, outer ? 0x5c : 0x36, sizeof block);
        for (int i = 0; i < 32; i++)
            block[i] ^= key[i];
        if (enctype <= 18)
            IMB_SHA1_ONE_BLOCK(m, block, pad);
        else if (enctype == 19)
            IMB_SHA256_ONE_BLOCK(m, block, pad);
        else
            IMB_SHA384_ONE_BLOCK(m, block, pad);
    }
    int key_len = enctype == 17 || enctype == 19 ? 16 : 32;
    if (key_len == 16)
        IMB_AES_KEYEXP_128(m, key, enc, dec);
    else
        IMB_AES_KEYEXP_256(m, key, enc, dec);
    start = now();
    passes = 0;
    do {
        size_t done = 0;
        for (size_t i = 0; i < count; i++) {
            IMB_JOB *job = IMB_GET_NEXT_JOB(m);
            memset(job, 0, sizeof *job);
            job->cipher_direction = seal ? IMB_DIR_ENCRYPT : IMB_DIR_DECRYPT;
            job->chain_order = hash_first ? IMB_ORDER_HASH_CIPHER : IMB_ORDER_CIPHER_HASH;
            job->cipher_mode = IMB_CIPHER_CBC;
            job->hash_alg = hash;
            job->enc_keys = enc;
            job->dec_keys = dec;
            job->key_len_in_bytes = key_len;
            job->src = job->dst = data[i];
            job->msg_len_to_cipher_in_bytes = job->msg_len_to_hash_in_bytes = whole;
            job->iv = iv;
            job->iv_len_in_bytes = 16;
            job->auth_tag_output = macs[i % 256];
            job->auth_tag_output_len_in_bytes = enctype <= 18 ? 12 : enctype == 19 ? 16 : 24;
            job->u.HMAC._hashed_auth_key_xor_ipad = ipad;
            job->u.HMAC._hashed_auth_key_xor_opad = opad;
            for (job = IMB_SUBMIT_JOB(m); job; job = IMB_GET_COMPLETED_JOB(m))
                done += job->status == IMB_STATUS_COMPLETED;
        }
        for (IMB_JOB *job; (job = IMB_FLUSH_JOB(m));)
            done += job->status == IMB_STATUS_COMPLETED;
        if (done != count) {
            fprintf(stderr, "libipsec-mb: %zu of %zu jobs, error %d\n", done, count, imb_get_errno(m));
            return 0;
        }
        passes++;
        spent = now() - start;
    } while (spent < limit);
    printf("libipsec-mb\t%.3f\n", passes * count * len / spent / 1e9);
#endif
    return 0;
}
