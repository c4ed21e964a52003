// The functions that proxy auto-configuration scripts may call. `__resolve` and `__ownAddress` are
// the program's.
"use strict";
function isPlainHostName(host) { return !String(host).includes(".") && !String(host).includes(":"); }
function dnsDomainIs(host, domain) { return String(host).toLowerCase().endsWith(String(domain).toLowerCase()); }
function localHostOrDomainIs(host, full) {
    host = String(host).toLowerCase(); full = String(full).toLowerCase();
    return host === full || (isPlainHostName(host) && full.startsWith(host + "."));
}
function dnsResolve(host) { const found = __resolve(String(host)); return found === "" ? null : found; }
function isResolvable(host) { return dnsResolve(host) !== null; }
function dnsDomainLevels(host) { return String(host).split(".").length - 1; }
function myIpAddress() { return __ownAddress(); }
function alert() {}
function convert_addr(text) {
    const parts = String(text).split(".");
    if (parts.length !== 4 || !parts.every((part) => /^\d{1,3}$/.test(part) && Number(part) <= 255)) { return null; }
    return parts.reduce((number, part) => number * 256 + Number(part), 0) >>> 0;
}
function isInNet(host, pattern, mask) {
    let address = convert_addr(host);
    if (address === null) {
        const found = dnsResolve(host);
        address = found === null ? null : convert_addr(found);
    }
    const [net, bits] = [convert_addr(pattern), convert_addr(mask)];
    return address !== null && net !== null && bits !== null && ((address & bits) >>> 0) === ((net & bits) >>> 0);
}
// Wildcards by two indices, which takes no exponential time.
function shExpMatch(text, pattern) {
    text = String(text); pattern = String(pattern);
    let at = 0, p = 0, star = -1, resume = 0;
    while (at < text.length) {
        if (p < pattern.length && pattern[p] === "*") { star = p++; resume = at; }
        else if (p < pattern.length && (pattern[p] === "?" || pattern[p] === text[at])) { p++; at++; }
        else if (star >= 0) { p = star + 1; at = ++resume; }
        else { return false; }
    }
    while (p < pattern.length && pattern[p] === "*") { p++; }
    return p === pattern.length;
}
const __days = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const __months = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
// The arguments without a last "GMT", and the parts of the time that it chooses.
function __now(list) {
    const values = Array.from(list), now = new Date();
    const isUtc = values[values.length - 1] === "GMT";
    if (isUtc) { values.pop(); }
    const part = (name) => now[(isUtc ? "getUTC" : "get") + name]();
    return { values, part };
}
function __within(first, now, last) { return first <= last ? first <= now && now <= last : now >= first || now <= last; }
function weekdayRange() {
    const { values, part } = __now(arguments);
    const [first, last] = [__days.indexOf(values[0]), __days.indexOf(values.length > 1 ? values[1] : values[0])];
    return first >= 0 && last >= 0 && __within(first, part("Day"), last);
}
function timeRange() {
    const { values, part } = __now(arguments);
    const n = values.map(Number), seconds = part("Hours") * 3600 + part("Minutes") * 60 + part("Seconds");
    switch (n.length) {
        case 1: return part("Hours") === n[0];
        case 2: return __within(n[0] * 3600, seconds, n[1] * 3600);
        case 4: return __within(n[0] * 3600 + n[1] * 60, seconds, n[2] * 3600 + n[3] * 60);
        case 6: return __within(n[0] * 3600 + n[1] * 60 + n[2], seconds, n[3] * 3600 + n[4] * 60 + n[5]);
        default: return false;
    }
}
function dateRange() {
    const { values, part } = __now(arguments);
    // Each value is a day of the month, a month or a year.
    const kind = (value) => typeof value === "string" && __months.includes(value.toUpperCase()) ? "Month" : Number(value) > 31 ? "FullYear" : "Date";
    const number = (value) => kind(value) === "Month" ? __months.indexOf(value.toUpperCase()) : Number(value);
    const half = values.length > 1 ? values.length / 2 : 1;
    if (!Number.isInteger(half) || half > 3) { return false; }
    const weight = { Date: 1, Month: 32, FullYear: 32 * 12 };
    const sum = (list) => list.reduce((total, value) => total + weight[kind(value)] * number(value), 0);
    const now = values.slice(0, half).reduce((total, value) => total + weight[kind(value)] * part(kind(value)), 0);
    return values.length === 1 ? now === sum(values) : __within(sum(values.slice(0, half)), now, sum(values.slice(half)));
}
