"""A program that loads about 800 files: numpy and much of the standard library of Python 3.11."""
import sys, os
import numpy, numpy.testing, numpy.f2py, numpy.distutils, numpy.typing
import asyncio, sqlite3, ssl, json, email.mime.text, xml.dom.minidom, xml.etree.ElementTree, http.server, http.client, urllib.request, logging.config, multiprocessing.pool, concurrent.futures, unittest.mock, ctypes.util, decimal, fractions, statistics, tarfile, zipfile, csv, html.parser, imaplib, ftplib, smtplib, telnetlib, xmlrpc.client, xmlrpc.server, wsgiref.simple_server, pdb, doctest, profile, cProfile, pstats, timeit, tracemalloc, curses, readline, lzma, bz2, zoneinfo, graphlib, tomllib, dbm.dumb, shelve, mailbox, pydoc, venv, zipapp, difflib, gettext, locale, cmd, shlex
import lib2to3.pgen2.driver, lib2to3.refactor, lib2to3.fixes, distutils.command.build_ext, distutils.command.install, importlib.metadata, importlib.resources, encodings
for name in os.listdir(os.path.dirname(encodings.__file__)):
    if name.endswith(".py") and name[0] != "_" and name not in ("mbcs.py","oem.py","cp65001.py"):
        try: __import__("encodings." + name[:-3])
        except ImportError: pass
for name in sorted(os.listdir(os.path.dirname(lib2to3.fixes.__file__))):
    if name.startswith("fix_"): __import__("lib2to3.fixes." + name[:-3])
import numpy.linalg
assert abs(numpy.linalg.det(numpy.eye(50)) - 1) < 1e-9
print(numpy.__version__)
